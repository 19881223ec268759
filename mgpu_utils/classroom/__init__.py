"""For a class: a pack to hand out, and marks for what comes back."""
