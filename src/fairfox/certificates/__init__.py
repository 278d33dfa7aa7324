"""Certificates: proofs about every point between a person and the same person in another group."""
