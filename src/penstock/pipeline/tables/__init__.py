"""The tables made from the change log, and the lake that keeps them; docs/pipeline.md explains both."""
