"""HTTP: who asks, may they, what do they want, and how the answer looks."""
