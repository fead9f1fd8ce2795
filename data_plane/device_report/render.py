"""Renders the report for a terminal of 80 columns: figures with units, and for each aim whether it is met."""

from typing import Any


def lines(report: dict[str, Any]) -> list[str]:
    text = [
        f"{len(report['gpus'])} x {report['gpus'][0]['name']} ({report['model']})",
        f"driver {report['driver']}, CUDA {report['cuda']}, {report['date']}, source {report['source']}",
        f"prepared in {report['prepared_seconds']:.2f} s (context, kernels compiled, warm-up)",
    ]
    for gpu in report["gpus"]:
        text += ["", f"GPU {gpu['index']}  {gpu['uuid']}", *_gpu(gpu)]
    challenge = report["challenge"]
    text += [
        "",
        _challenge(challenge),
        *(f"  {one['code']}: {one['why']}" for one in (*challenge["findings"], *challenge["hints"])),
        "",
    ]
    for aim in report["aims"]:
        word = "at least" if aim["at_least"] else "at most"
        verdict = "met" if aim["is_met"] else "MISSED"
        value, bound = (_figure(aim[key], aim["unit"]) for key in ("value", "bound"))
        text.append(f"{aim['what']:<44} {value:>8}  {word} {bound:<7} {verdict}")
    return text


def _gpu(gpu: dict[str, Any]) -> list[str]:
    wrong = [what for what, is_right in gpu["exactness"].items() if not is_right]
    launch, largest, fill = gpu["launch"], gpu["largest_allocation"], gpu["fill"]
    text = [
        "  arithmetic    " + (f"WRONG: {', '.join(wrong)}" if wrong else "exact, bit by bit"),
        f"  launch        {launch['median_us']:.1f} us median, {launch['p99_us']:.1f} us p99",
        f"  memory        {_gib(largest['bytes'])} in one piece, {largest['share_of_total']:.1%} of the total",
        _fill(fill),
    ]
    for share, walk in gpu["walk_by_share_of_memory"].items():
        text.append(
            f"  walk          {walk['rate'] / 1e9:.0f} GB/s over {_gib(walk['bytes'])} ({share}), "
            f"{walk['share_of_peak']:.1%} of peak"
        )
    for steps, walk in gpu["walk_by_steps"].items():
        text.append(f"  walk, {steps:>4} steps a chain: {walk['share_of_peak']:.1%} of peak")
    for kind, tiles in gpu["tiles"].items():
        text.append(
            f"  tiles {kind:<7} {tiles['rate'] * 2 / 1e12:.1f} T operations/s, {tiles['share_of_peak']:.1%} of peak"
        )
    gaps = gpu["gaps"]
    text.append(
        f"  gaps          {gaps['gaps']} over {gaps['threshold_us']} us on {gaps['sms']} multiprocessors, "
        f"longest {gaps['longest_us']} us"
    )
    return text


def _challenge(challenge: dict[str, Any]) -> str:
    verifier = f"verifier {challenge['verifier_cpu_seconds']:.2f} CPU-s"
    return f"challenge of all GPUs: {challenge['outcome']} in {challenge['seconds']:.2f} s, {verifier}"


def _fill(fill: dict[str, Any]) -> str:
    rate = f"{fill['rate'] / 1e9:.2f} G unit-iterations/s"
    return f"  fill          {fill['seconds']:.2f} s at {fill['iterations']} iterations, {rate}"


def _gib(count: int) -> str:
    return f"{count / (1 << 30):.2f} GiB"


def _figure(value: float, unit: str) -> str:
    return f"{value:.2f} {unit}" if unit else f"{value:.1%}"
