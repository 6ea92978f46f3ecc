import numpy as np
import torch

from infobatch.lab.data import fashion
from infobatch.lab.data.fashion_scenes import OBJECTS, SIDE, FashionScenes, scene

TRAIN = fashion.load().train


def pixels_of(boxes):
    """(left, top, right, bottom) of boxes, in whole pixels."""
    centre, size = boxes[:, :2] * SIDE, boxes[:, 2:] * SIDE
    return torch.cat([centre - size / 2, centre + size / 2], 1)


def test_boxes_touch_what_is_in_them_on_all_sides_and_nothing_lies_outside_or_in_two():
    for made in FashionScenes(TRAIN, 0, 30).scenes:
        assert 1 <= len(made.boxes) == len(made.labels) <= OBJECTS
        covered = torch.zeros(SIDE, SIDE, dtype=torch.int64)
        edges = pixels_of(made.boxes)
        assert torch.equal(edges, edges.round())
        assert edges.min() >= 0
        assert edges.max() <= SIDE
        for left, top, right, bottom in edges.long().tolist():
            inside = made.image[0, top:bottom, left:right]
            assert all(side.any() for side in (inside[0], inside[-1], inside[:, 0], inside[:, -1]))
            covered[top:bottom, left:right] += 1
        assert covered.max() == 1
        assert not made.image[0][covered == 0].any()


def test_a_scene_shows_the_pictures_its_labels_say():
    """With one picture per class, each of another brightness, the brightest pixel tells the class."""
    images = np.zeros((10, 28, 28), np.uint8)
    for label in range(10):
        images[label, 4:24, 6:22] = 100 + label
    made = FashionScenes(fashion.Split(images, np.arange(10)), 0, 20).scenes
    for each in made:
        for label, (left, top, right, bottom) in zip(each.labels, pixels_of(each.boxes).long(), strict=True):
            assert each.image[0, top:bottom, left:right].max() == 100 + label
    assert {int(label) for each in made for label in each.labels} == set(range(10))
    assert {len(each.labels) for each in made} == set(range(1, OBJECTS + 1))


def test_a_scene_depends_on_its_stream_and_number_alone():
    all_of_them = FashionScenes(TRAIN, 0, 5)
    alone = scene(TRAIN, 0, 3)
    assert all(torch.equal(one, other) for one, other in zip(all_of_them[3], alone, strict=True))
    assert not torch.equal(scene(TRAIN, 1, 3).image, alone.image)
    assert not torch.equal(scene(TRAIN, 0, 4).image, alone.image)
