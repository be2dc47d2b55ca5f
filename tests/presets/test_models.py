"""Named models have the published sizes, to the unit."""

import pytest

from vitral.base.errors import UsageError
from vitral.build import parameter_count
from vitral.presets.models import model

PUBLISHED = {
    "ti/16": 5_717_416,
    "s/16": 22_050_664,
    "b/16": 86_567_656,
    "b/32": 88_224_232,
    "l/16": 304_326_632,
    "l/32": 306_535_400,
    "h/14": 632_045_800,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_parameter_counts(name):
    assert parameter_count(model(name)) == PUBLISHED[name]


def test_the_reports_own_models():
    assert parameter_count(model("report-cifar")) == 3_195_146  # R2, 12.781 MB
    assert parameter_count(model("cnn")) == 5_852_234  # R2, 23.409 MB
    mnist = model("report-mnist")
    assert (mnist.image_size, mnist.channels, mnist.patch_size, mnist.width, mnist.depth, mnist.heads) == ((32, 32), 1, (4, 4), 32, 4, 8)


def test_unknown_names_are_answered_with_near_ones():
    with pytest.raises(UsageError, match=r"'b/15'.*b/16"):
        model("b/15")
    with pytest.raises(UsageError, match=r"'widht'.*width"):
        model("b/16", widht=3)
