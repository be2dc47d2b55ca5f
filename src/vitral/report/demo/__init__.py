"""What `vitral demo` runs."""
