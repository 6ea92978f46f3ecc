from infobatch.lab import recipes
from infobatch.lab.data import catalogue


def test_every_data_set_that_a_recipe_can_name_is_listed_once():
    names = [entry.name for entry in catalogue.entries()]
    can_name = {name for kind in recipes.KINDS.values() for name in kind.choices["dataset"]}
    assert sorted(names) == sorted({*can_name, "hf:NAME"})


def test_every_data_set_says_what_it_needs_and_where_to_get_it():
    for entry in catalogue.entries():
        assert all(entry), entry
    needs = {entry.name: entry.needs for entry in catalogue.entries()}
    assert needs["mnist"] == "train-images-idx3-ubyte.gz (also in mnist, MNIST/raw)"
    assert needs["audiomnist"] == "audiomnist.npz"
