import torch
from torch import nn

from vitral.train.ema import EMA
from vitral.train.schedule import ema_decay


def test_the_average_is_the_closed_form_and_leaves_the_weights_alone():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    average = EMA(model, 0.95)
    expected = {name: value.clone() for name, value in model.state_dict().items()}
    for step in range(30):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter))
            model[1].running_mean.add_(1.0)  # type: ignore[union-attr, operator]
            model[1].num_batches_tracked.add_(1)  # type: ignore[union-attr, operator]
        before = {name: value.clone() for name, value in model.state_dict().items()}
        average.update(model)
        expected["1.num_batches_tracked"] = model.state_dict()["1.num_batches_tracked"].clone()
        decay = ema_decay(0.95, step)
        for name, value in model.state_dict().items():
            assert torch.equal(value, before[name])
            if value.is_floating_point():
                expected[name] = decay * expected[name] + (1 - decay) * value
    for name in expected:  # weights, and the batch statistics that belong to them
        assert torch.allclose(average.values[name], expected[name], atol=1e-4)


def test_inside_swaps_the_weights_and_gives_them_back_bit_for_bit():
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    average = EMA(model, 0.9)
    with torch.no_grad():
        model.weight.normal_()
    own = model.weight.detach().clone()
    with average.inside(model):
        assert torch.equal(model.weight, average.values["weight"]) and not torch.equal(model.weight, own)
    assert torch.equal(model.weight, own)
    average.restart(model)
    assert torch.equal(average.values["weight"], own) and average.updates == 0
