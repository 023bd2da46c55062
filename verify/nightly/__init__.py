"""The nightly pipeline on the host (`verify nightly`): build, prove, promote, or leave `latest` alone.

settings: what a night is made with · state: how far it is · stages: what each step does · runner: their order ·
registry: the registry's own API · contents, sbom, provenance: what is in the image · changes: what is new in it ·
promotions: which digest was promoted when and why, rollback, retention · differ: two builds that should be equal.
"""
