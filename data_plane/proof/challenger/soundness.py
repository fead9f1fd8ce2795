"""What a passed proof is worth: the formulas of docs/gpu-proof.md, one function each.

Shares are fractions of 1, rates are per second, times are in seconds. Tests compare the tables of the document with
these functions, and the benchmark `proof_catch_rates` compares them with what cheats achieve.
"""


def passes_skipping(left_out: float, opened: int) -> float:
    """The probability that a cheat which skipped a share of the chains or tiles is not caught.

    (1-d)^s: each of the s `opened` ones is drawn after the commitment, so it is a skipped one with probability d.
    Drawing without repetition only lowers this probability.
    """
    return (1 - left_out) ** opened


def passes_without_memory(stored: float, steps: int, opened: int) -> float:
    """The probability that all opened chains are right although a share of the blocks is not stored.

    f^(T s): each of the T steps of each of the s chains must read a stored block.
    """
    return stored ** (steps * opened)


def regeneration_cost(fill_rate: float, walk_rate: float, iterations: int, unit_bytes: int = 64) -> float:
    """rho: the time to compute a unit of the fill, divided by the time to read one.

    `fill_rate` is in units times iterations, `walk_rate` in bytes. `iterations` is chosen so that rho is about 40.
    """
    return (iterations / fill_rate) / (unit_bytes / walk_rate)


def link_cost(walk_rate: float, host_link: float) -> float:
    """pi: the time of a read over the host link, divided by the time of a read from the card's memory. Rates in
    bytes.
    """
    return walk_rate / host_link


def slack(tolerance: float, network: float, honest: float) -> float:
    """lambda: the time that the rule allows, divided by the time that an honest card takes.

    (1+e) + RTT_cap/T, where e is the `tolerance` and RTT_cap the `network` seconds. The real network time is not
    measured, so a cheat can use that allowance as well.
    """
    return 1 + tolerance + network / honest


def hidden_memory_max(slack: float, regeneration_cost: float, link_cost: float) -> float:
    """The largest share of the filled memory that can be missing: m < lambda (1/rho + 1/pi).

    A cheat computes missing blocks again and fetches others from the host at the same time, while the card reads the
    blocks that it has. In lambda times the honest time, computing serves lambda/rho of all reads, and the link serves
    lambda/pi. This is an upper bound: it assumes that these do not slow each other down, and that the card's own reads
    take no time.
    """
    return min(1.0, slack * (1 / regeneration_cost + 1 / link_cost))


def proven_memory(filled: float, hidden: float) -> float:
    """The share of the sold memory that is proven to be fast memory of one device, if `filled` of it was walked."""
    return filled * (1 - hidden)
