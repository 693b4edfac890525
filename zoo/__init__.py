"""Real 3D networks that the tests prune and the coverage table lists: MONAI's, and the video and stereo world's."""
