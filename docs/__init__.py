"""The documentation: `conf` has the settings of Sphinx, `generate` writes the pages of reference/."""
