"""Step 6 of 6: model + Plan -> a slim, dense, ordinary nn.Module, its proof and its file."""
