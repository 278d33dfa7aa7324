"""What a model does at every point between a person and the same person in another group: proofs, not samples."""
