"""Commands: argv and environment become a MountConfig here, and nowhere else."""
