"""The simulated network: TCP as its users see it."""

import asyncio

from tests.sim.loop import SimLoop, World
from tests.sim.network import Network, SimSocket

HERE, THERE, PORT = "10.0.0.1", "10.0.0.2", 9


def connected(world: World) -> tuple[Network, SimSocket, SimSocket]:
    network = Network(world)
    listener = network.bind(SimLoop(world, "there"), THERE, PORT)
    listener.listen(1)
    loop = SimLoop(world, "here")
    connecting = loop.run_soon(network.connect(loop, HERE, THERE, PORT))
    world.run(1.0)
    return network, connecting.result(), listener.accept()[0]


def received(end: SimSocket) -> bytes:
    return bytes(end.inbox)


def test_bytes_arrive_in_order_however_often_the_link_is_cut() -> None:
    world = World("1")
    network, ours, theirs = connected(world)
    sent = b""
    for number in range(200):
        data = b"%d " % number
        assert ours.send(data) == len(data)
        sent += data
        if number % 7 == 0:
            network.cut(HERE, THERE)
        if number % 11 == 0:
            network.heal()
        world.run(world.now_s + 0.0003)
        assert sent.startswith(received(theirs))
    network.heal()
    world.run(world.now_s + 1.0)
    assert received(theirs) == sent


def test_a_machine_without_power_says_nothing_and_then_that_it_knows_of_no_connection() -> None:
    world = World("1")
    network, ours, _ = connected(world)
    network.power_off(THERE)
    ours.send(b"hello")
    world.run(world.now_s + 10.0)
    assert not ours.is_readable()
    network.power_on(THERE)
    ours.send(b"hello?")
    world.run(world.now_s + 1.0)
    assert ours.is_reset


def test_nobody_listens_is_told_and_a_link_that_is_cut_is_waited_for() -> None:
    world = World("1")
    network = Network(world)
    network.host(THERE)
    loop = SimLoop(world, "here")
    refused = loop.run_soon(network.connect(loop, HERE, THERE, PORT))
    world.run(1.0)
    assert isinstance(refused.exception(), ConnectionRefusedError)
    network.cut(HERE, THERE)
    waiting: asyncio.Task[SimSocket] = loop.run_soon(network.connect(loop, HERE, THERE, PORT))
    world.run(5.0)
    assert not waiting.done()
