"""Rules about transformers: attention, output logits, embeddings: ATT."""
