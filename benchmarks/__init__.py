"""What the library costs, as ratios to what torch or a plain numpy version costs for the same work."""
