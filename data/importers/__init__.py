"""One file per API family; each turns objects of its API into groups and claims their pods."""
