"""Jobs: a question about a snapshot in, a verified plan out; the unit that is fanned out."""
