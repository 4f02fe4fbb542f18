"""What the Python tests share: tiny models, datasets, and a daemon of their own."""
