"""What runs in the environment of `infra/`, with Pulumi, and is started from the tests' own."""
