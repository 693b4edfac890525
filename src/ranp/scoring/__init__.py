"""Step 2 of 6: model + batches + loss -> Scores: how much each channel matters."""
