"""What reproduces the paper: its networks, tasks, training and experiments. The core never imports this package."""
