"""What the ledger keeps of things besides messages: claims, fan-outs, redrives, schedules, sinks and uploads."""
