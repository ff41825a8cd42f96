"""The only code that knows S3: botocore, aiobotocore and awscrt stop at this package."""
