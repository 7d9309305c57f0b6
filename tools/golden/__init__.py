"""The golden store, part by part: what is asked of a broker, and what a reader must see of it."""
