"""What tests share: networks, oracles, small runs and files; nothing here is a test."""
