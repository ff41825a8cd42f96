"""The only code that imports pyfuse3: it translates and never decides."""
