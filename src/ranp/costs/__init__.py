"""Step 3 of 6: Trace -> Costs: what each layer, any choice of channels and a whole training step need."""
