"""From a decoded request to its answer: what all APIs that generate share."""
