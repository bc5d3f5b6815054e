"""Weights of pages by their hosts: for ranks that are personal to some hosts."""

from __future__ import annotations

import numpy as np

from opicflow.schemas.arrays import Bytes, Floats, Hashes, Ints
from opicflow.schemas.hashing import byte_at, hash_bytes, hash_texts
from opicflow.schemas.kernel import kernel


def weights_of_hosts(text: Bytes, ends: Ints, weights: dict[bytes, float]) -> Floats:
    """Return the weight of each page's host; 0 for hosts without a weight.

    A name that begins with a dot, such as .example.org, is that host and all hosts below it; longer names come first.
    """
    weights = {**{name[1:]: weight for name, weight in weights.items() if name.startswith(b".")}, **weights}
    hosts = hash_texts(weights)
    order = np.argsort(hosts)
    found = np.zeros(len(ends))
    _weigh_hosts(text, ends, hosts[order], np.array(list(weights.values()))[order], found)
    return found


@kernel
def _weigh_hosts(text: Bytes, ends: Ints, hosts: Hashes, weights: Floats, found: Floats) -> None:
    begin = np.int64(0)
    for page in range(ends.shape[0]):
        end = ends[page]
        if end > begin:
            first = begin + 7 + (byte_at(text, begin + 4) == 115)  # past http:// or https://
            last = first
            while last < end and byte_at(text, last) != 47:
                last += 1
            while first < last:  # the host, then .b.c and .c of a.b.c
                digest = hash_bytes(text, first, last)
                at = np.searchsorted(hosts, digest)
                if at < hosts.shape[0] and hosts[at] == digest:
                    found[page] = weights[at]
                    break
                first += 1
                while first < last and byte_at(text, first) != 46:
                    first += 1
        begin = end
