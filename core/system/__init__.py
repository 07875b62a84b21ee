"""The machine and the packages below: their private names, and the import of torch."""
