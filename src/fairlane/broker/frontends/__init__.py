"""Front ends: the engine for threads and for asyncio."""
