"""Damaged stores: a store is made once, copied, damaged in many ways, and opened again."""
