"""Three web sites that share their users: a shop, a wiki and an issue tracker."""
