"""Real networks that the tests prune and the coverage table lists: for volumes, video, stereo, images and sound."""
