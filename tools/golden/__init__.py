"""The golden store: the requests that fill it, and what a reader must see."""
