"""What the daemon remembers about the bucket; knows neither S3 nor FUSE."""
