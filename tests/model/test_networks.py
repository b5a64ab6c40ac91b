"""The encoders and the task network: shapes, layout, sizes, and independence of the rows' order and of padding."""

import pytest
import torch
from torch import nn

from metaclust.model.clustering_model import ClusteringModel
from metaclust.model.config import ModelConfig
from metaclust.model.encoders.image import ImageEncoder
from metaclust.model.encoders.residual import ResidualEncoder
from metaclust.model.encoders.vector import VectorEncoder
from metaclust.model.layers import ReLUDropout, feed_forward
from metaclust.model.task_network import TaskNetwork

SIZES = [(1, 1), (5, 7), (28, 28), (32, 20), (84, 84)]


def encoder(shape, strided=True, seed=0):
    torch.manual_seed(seed)
    return ImageEncoder(shape, representation=3, filters=4, hidden=8, strided=strided).eval()


def task_network(seed=0):
    torch.manual_seed(seed)
    return TaskNetwork(representation=3, clusters=5, hidden=16).eval()


def layers(module, kind):
    return [layer for layer in module.modules() if isinstance(layer, kind)]


def parameters(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("strided", [True, False])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_images_of_any_size_become_one_vector_each(size, channels, strided):
    z = encoder((channels, *size), strided)(torch.rand(2, channels, *size))
    assert z.shape == (2, 3)
    assert z.isfinite().all()


def test_vectors_become_one_vector_each():
    assert VectorEncoder(7, representation=4, hidden=8)(torch.randn(5, 7)).shape == (5, 4)


@pytest.mark.parametrize("strided", [True, False])
def test_bytes_and_their_fractions_of_255_are_the_same_image(strided):
    x = torch.randint(256, (6, 3, 9, 8), dtype=torch.uint8)
    network = encoder((3, 9, 8), strided)
    torch.testing.assert_close(network(x), network(x / 255))


def test_bytes_are_read_in_the_precision_of_the_weights():
    x = torch.randint(256, (2, 1, 5, 5), dtype=torch.uint8)
    assert encoder((1, 5, 5)).double()(x).dtype == torch.float64


def test_grey_images_need_no_channel_axis():
    x = torch.rand(4, 6, 5)
    network = encoder((1, 6, 5))
    assert torch.equal(network(x), network(x[:, None]))


@pytest.mark.parametrize("strided", [True, False])
def test_images_of_a_batch_do_not_see_each_other_in_eval_mode(strided):
    x = torch.rand(5, 1, 9, 9)
    network = encoder((1, 9, 9), strided)
    torch.testing.assert_close(network(x), torch.cat([network(row[None]) for row in x]))


def test_convolution_weights_lie_channels_last():
    for convolution in layers(encoder((3, 16, 16)), nn.Conv2d):
        assert convolution.weight.is_contiguous(memory_format=torch.channels_last)
        assert not convolution.weight.is_contiguous()


@pytest.mark.parametrize(("strided", "strides", "pools"), [(True, 2, 0), (False, 1, 4)])
def test_each_block_halves_by_a_stride_or_by_a_pool(strided, strides, pools):
    network = encoder((1, 33, 20), strided)
    assert {convolution.stride for convolution in layers(network, nn.Conv2d)} == {(strides, strides)}
    assert len(layers(network, nn.MaxPool2d)) == pools
    assert network.blocks(torch.rand(2, 1, 33, 20)).shape == (2, 4, 3, 2)


def test_feed_forward_is_the_papers_three_layers_of_256():
    network = feed_forward(7, 5)
    assert [(layer.in_features, layer.out_features) for layer in layers(network, nn.Linear)] == [
        (7, 256),
        (256, 256),
        (256, 5),
    ]
    assert [layer.p for layer in layers(network, ReLUDropout)] == [0.1, 0.1]


def test_the_papers_image_encoder_has_four_3x3_convolutions_of_32_filters():
    network = ClusteringModel(ModelConfig.preset("paper", (1, 28, 28))).encoder
    convolutions = layers(network, nn.Conv2d)
    assert [convolution.weight.shape for convolution in convolutions] == [(32, 1, 3, 3)] + 3 * [(32, 32, 3, 3)]
    convolved = 9 * 32 * (1 + 3 * 32) + 4 * 2 * 32
    flat = 32 * 2 * 2  # 28, 14, 7, 4, 2
    assert parameters(network) == convolved + 257 * 256 + (flat + 1) * 256 + 257 * 10


def test_the_papers_task_network_has_three_networks_of_three_layers():
    network = ClusteringModel(ModelConfig.preset("paper", (1, 28, 28))).task_network
    assert len(layers(network, nn.Linear)) == 9
    f_u = 11 * 256 + 2 * 257 * 256
    g_u = 3 * 257 * 256
    f_r = (10 + 256 + 1) * 256 + 257 * 256 + 257 * 10
    assert parameters(network) == f_u + g_u + f_r


def test_permuting_the_rows_permutes_the_logits():
    z = torch.randn(2, 9, 3)
    order = torch.randperm(9)
    network = task_network()
    torch.testing.assert_close(network(z[:, order]), network(z)[:, order])


def test_the_task_network_is_f_r_of_each_row_and_the_transformed_mean():
    z = torch.randn(2, 9, 3)
    network = task_network()
    u = network.g_u(network.f_u(z).mean(1, keepdim=True)).expand(-1, 9, -1)
    torch.testing.assert_close(network(z), network.f_r(torch.cat((z, u), -1)))


def test_logits_of_a_row_depend_on_the_other_rows():
    z = torch.randn(9, 3)
    network = task_network()
    assert (network(z)[0] - network(z[:4])[0]).abs().max() > 1e-5


def test_logits_of_padded_tasks_are_those_of_each_task_alone():
    sizes = [1, 4, 7]
    z = torch.randn(3, 7, 3)
    mask = torch.arange(7) < torch.tensor(sizes)[:, None]
    network = task_network()
    logits = network(z, mask)
    for task, size in enumerate(sizes):
        torch.testing.assert_close(logits[task, :size], network(z[task, :size]))


def test_padding_gets_no_gradient():
    z = torch.randn(2, 6, 3, requires_grad=True)
    mask = torch.arange(6) < torch.tensor([[3], [6]])
    task_network()(z, mask)[mask].square().sum().backward()
    assert (z.grad[~mask] == 0).all()
    assert (z.grad[mask] != 0).any(-1).all()


def test_a_task_without_rows_has_finite_logits():
    mask = torch.zeros(1, 4, dtype=torch.bool)
    assert task_network()(torch.randn(1, 4, 3), mask).isfinite().all()


@pytest.mark.parametrize("unit", [False, True])
def test_a_residual_encoder_may_be_given_what_training_does_not_change(unit):
    torch.manual_seed(0)
    x = torch.randn(40, 6)
    encoder = ResidualEncoder(6, 4, hidden=8, unit=unit).eval()
    encoder.fit(x)
    torch.nn.init.normal_(encoder.network[-1].weight)
    expected = encoder(x)
    with encoder.started(x, block=7) as starts:
        torch.testing.assert_close(encoder(starts[3:20]), expected[3:20])
    torch.testing.assert_close(encoder(x), expected)
