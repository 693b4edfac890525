"""What is written and read: whole files or none, under a checksum; nothing in a file is ever executed."""
