"""The control plane on AWS, as a Pulumi program: docs/deploying.md says how it is used, docs/decisions/0049 why."""
