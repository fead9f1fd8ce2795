"""What a pass is worth: the closed forms behind docs/gpu-proof.md, one function each.

Shares are of 1, rates per second, times in seconds. Its tests hold the tables of the document against them; the
benchmark `proof_catch_rates` prints what cheats achieve beside them.
"""


def passes_skipping(left_out: float, opened: int) -> float:
    """Probability that who left out a share of the chains or tiles before committing is not found out.

    (1-d)^s: each of `opened` is drawn after the commitment, so each meets a left-out one with probability d.
    Drawing without repetition can only lower it.
    """
    return (1 - left_out) ** opened


def passes_without_memory(stored: float, steps: int, opened: int) -> float:
    """Probability that all opened chains are right although a share of the blocks is simply not there.

    f^(T s): every one of T steps of every one of s chains has to fall on a stored block.
    """
    return stored ** (steps * opened)


def regeneration_cost(fill_rate: float, walk_rate: float, iterations: int, unit_bytes: int = 64) -> float:
    """rho: the time to compute a unit of the fill over the time to read one.

    `fill_rate` in units times iterations, `walk_rate` in bytes. `iterations` is chosen so that it is about 40.
    """
    return (iterations / fill_rate) / (unit_bytes / walk_rate)


def link_cost(walk_rate: float, host_link: float) -> float:
    """pi: how many times as long a read over the host link takes as one from the card's memory; both in bytes."""
    return walk_rate / host_link


def slack(tolerance: float, network: float, honest: float) -> float:
    """lambda: the time that the rule allows over the time that an honest card takes.

    (1+e) + RTT_cap/T: `tolerance` e beyond the reference time, and `network` seconds that are never measured
    and so belong to the cheat as well.
    """
    return 1 + tolerance + network / honest


def hidden_memory_max(slack: float, regeneration_cost: float, link_cost: float) -> float:
    """Largest share of the filled memory that can be missing: m < lambda (1/rho + 1/pi).

    Missing blocks are computed again and fetched from the host at once, while the card reads what it has. In
    lambda times the honest time, computing serves lambda/rho of all reads and the link lambda/pi. This grants
    that they do not hinder each other, and that the card reads the rest for nothing: an upper bound.
    """
    return min(1.0, slack * (1 / regeneration_cost + 1 / link_cost))


def proven_memory(filled: float, hidden: float) -> float:
    """Share of the advertised memory that is fast memory of one device, if `filled` of it was filled and walked."""
    return filled * (1 - hidden)
