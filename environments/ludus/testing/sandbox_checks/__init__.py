"""The checks of `ludus.testing.sandboxes`, by subject. A check is an async function; its name says what must hold."""
