"""Who may speak as a node: only those that know the secret on the board. Callers stay who they are on the way."""

from __future__ import annotations

import asyncio
import ssl

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from fairlane.cluster.node_proofs import NodeProofs
from fairlane.cluster.peers import Peers
from fairlane.errors import NodeInsecure
from fairlane.gateway.caller import Caller
from fairlane.gateway.context import PLAIN
from fairlane.verbs.keys import Grant
from fairlane.verbs.queues import GetStats
from fairlane.wire.frames import SUBPROTOCOL
from tests.kit.waiting import until
from tests.unit.cluster.in_process import Member, cluster_of
from tests.unit.cluster.test_partition_rules import key_for
from tests.unit.server.local_server import opened, run
from tests.unit.server.test_partitions import everybody_knows

A, B = "http://a:1", "http://b:1"


def proofs(secret: str | None, *, node: str = "b", address: str = B) -> NodeProofs:
    """Return the proofs of a node."""
    return NodeProofs(node=node, address=address, secret=lambda: secret)


def test_a_proof_counts_at_the_node_it_is_made_for() -> None:
    """A proof by another secret, for another node, under another name, or without a secret is none."""
    a = proofs("s", node="a", address=A)
    proof = proofs("s").for_node_at(A)
    assert a.is_valid(proof)
    assert not proofs("s").is_valid(proof)
    assert not a.is_valid(proofs("t").for_node_at(A))
    assert not a.is_valid(proof.replace("b ", "c "))
    for malformed in ("", "b", "b ", " ", "é é", proof[:-1], proof + "0", proof.upper()):
        assert not a.is_valid(malformed)
    without = proofs(None, node="a", address=A)
    assert not without.is_valid(proofs(None).for_node_at(A))
    assert not without.is_valid(proofs("").for_node_at(A))


def test_all_nodes_know_one_secret_and_no_answer_shows_it() -> None:
    """The first node creates the secret; the others use it, and neither the cluster's view nor config has it."""

    async def main() -> None:
        async with cluster_of("abc") as cluster:
            entries = [member.node.board.view.secret for member in cluster.members.values()]
            (secret,) = {entry.secret for entry in entries if entry is not None}
            assert (len(entries), None in entries, len(secret)) == (3, False, 64)
            answers = [await cluster["a"].post(path) for path in ("cluster", "config/list", "queues/list")]
            assert not any(secret in answer.text for answer in answers)
            assert secret not in repr(entries)

    run(main())


async def refused(member: Member, proof: str) -> list[int]:
    """Return the statuses with which a node refuses a proof, over HTTP and in the handshake of the stream."""
    answer = await member.post("queue/stats", {"queue": "orders"}, x_fairlane_forwarded=proof)
    watched = await member.http.get("/v1/queues", headers={"x-fairlane-forwarded": proof})
    url, headers = member.address.replace("http", "ws") + "/v1/stream", {"x-fairlane-forwarded": proof}
    with pytest.raises(InvalidStatus) as handshake:
        await connect(url, subprotocols=[SUBPROTOCOL], additional_headers=headers)  # type: ignore[list-item]  # a name
    return [answer.status_code, watched.status_code, handshake.value.response.status_code]


def test_who_pretends_to_be_a_node_is_refused() -> None:
    """The header of nodes counts only with a proof, whether or not it names a real node."""

    async def main() -> None:
        async with cluster_of("ab") as cluster:
            await cluster["a"].done("queues/create", {"queue": "orders"})
            a, b = cluster["a"], cluster["b"]
            for forged in ("1", "b", b.node.proofs().for_node_at(b.address)):
                assert await refused(a, forged) == [403, 403, 403]
            genuine = b.node.proofs().for_node_at(a.address)
            await a.done("queues/list", x_fairlane_forwarded=genuine)

    run(main())


def test_a_server_on_its_own_has_no_other_nodes() -> None:
    """It refuses the header of nodes from everyone."""

    async def main() -> None:
        async with opened() as server:
            answer = await server.post("queues/list", x_fairlane_forwarded="a 0")
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")

    run(main())


def test_a_tenant_is_held_to_its_grant_at_every_node() -> None:
    """Whichever node is asked, and however the queue is split, a message gets no key that its producer may not use."""

    async def main() -> None:
        async with cluster_of("abc", requires_auth=True) as cluster:
            ruler = await key_for(cluster, "ruler", Grant(right="admin"))
            tenant = await key_for(cluster, "acme", Grant(right="produce", keys=("acme",)))
            await until(
                lambda: all(len(each.server.api_keys) == 2 for each in cluster.members.values()), "all know them"
            )
            policy = {"fairness_key_from": "header:tenant"}
            await cluster["a"].done("queues/create", {"queue": "orders", "policy": policy}, authorization=ruler)
            forged = {"fairness_key": "acme", "headers": {"tenant": "bigcorp"}}
            request = {"queue": "orders", "messages": [forged, {"headers": {"tenant": "acme"}}]}
            for partitions in (1, 3):
                if partitions > 1:
                    split = {"queue": "orders", "partitions": partitions}
                    await cluster["a"].done("cluster/split", split, authorization=ruler)
                    await everybody_knows(cluster, "orders", partitions)
                for member in cluster.members.values():
                    first, second = (await member.done("queue/enqueue", request, authorization=tenant))["results"]
                    assert (first["error"]["code"], "id" in second) == ("forbidden", True)

    run(main())


def test_a_node_with_tls_sends_no_api_key_in_clear_text() -> None:
    """A peer whose address is http is not asked at all."""

    async def main() -> None:
        connections: list[object] = []
        server = await asyncio.start_server(lambda _reader, writer: connections.append(writer), "127.0.0.1", 0)
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        peers = Peers(lambda _address: "a", tls=ssl.create_default_context())
        caller = Caller("n", (), "id", "Bearer secret")
        with pytest.raises(NodeInsecure):
            await peers.ask(address, GetStats(queue="orders"), caller, PLAIN)
        with pytest.raises(NodeInsecure):
            async with peers.listen(address, "/v1/live", {"authorization": "Bearer secret"}):
                pass
        assert not connections
        server.close()
        await peers.close()

    run(main())
