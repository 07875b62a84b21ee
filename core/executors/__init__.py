"""What computes a DecoderSpec."""
