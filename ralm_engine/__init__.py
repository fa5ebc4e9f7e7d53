"""Score large corpora with retrieval-augmented, frozen language models, offline and in batch."""

__version__ = "0.1.0"
