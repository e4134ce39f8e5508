"""The reference GRPO trainer (not written yet)."""
