"""The codes that answers give as reasons, each with its meaning, which never changes. New ones may come."""

from typing import Annotated

from control_plane.wire.vocabulary import one_of

FailReasonWord = Annotated[
    str,
    one_of(
        "FailReason",
        "Why an attempt failed.",
        no_capacity="The provider had no stock.",
        quota_reached="Our account at the provider may hold no more.",
        order_refused="The provider refused the order.",
        unauthorized="The provider refused our credentials.",
        launch_answer_lost="The answer to the order was lost, and the machine was not found.",
        not_taken="The provider was too busy for the order, or unreachable, for too long.",
        never_booted="The provider did not report in time that the machine runs.",
        provider_reported_failure="The provider reported that the machine failed.",
        not_running="It did not run any more, and its provider did not say that it had failed.",
        unreachable="The machine did not answer over SSH in time.",
        host_key_changed="The machine presented another SSH host key than ours.",
        setup_failed="The machine could not be set up.",
        gpu_mismatch="Its GPUs are not what was sold.",
        proof_failed=(
            "Its GPUs failed their proof twice in a row, prove less than was sold, or failed once and "
            "were not cleared while a customer waited."
        ),
        proof_emulated="An emulation answered instead of its GPUs.",
        node_failed="It did not become a healthy node of its cluster in time.",
        node_lost="It was a node of a cluster, and stayed unready for too long.",
        node_hostile="As a node of a cluster it claimed what it does not have.",
        vanished="The provider no longer lists the machine.",
        evicted="Its provider took it back: it was spot capacity.",
        unhealthy="It had a fault that we saw ourselves, or its customer handed it back.",
        not_attended="An outage of ours kept us from doing our part for hours.",
        lease_ended="The lease ended before the provider took the order.",
    ),
]
PoolRejectCodeWord = Annotated[
    str,
    one_of(
        "PoolRejectCode",
        "Why a machine of a warm pool was not claimed for a lease.",
        pool_closed="Its pool is being deleted.",
        other_tier="Its pool serves another service level than the lease's.",
        node="The lease is a node of a cluster, and those are not taken from pools.",
        spot="The lease is for spot capacity, and pools have none.",
        interruptible="The lease is interruptible, and pools are for those that are not.",
        region_excluded="It is in a region that the request excludes.",
        provider_excluded="It is of a provider that the request excludes.",
        envelope_excluded="An envelope does not allow its region or its provider.",
        costs_more_than_sold="It costs us more than it is sold for.",
        account_unhealthy="Nothing is taken from its provider account for the moment.",
        shape_differs="The SKU promises more now than when the machine was ordered.",
        not_ready="It is still being set up, is not listed by its provider, or is not proven now.",
        taken="A lease that goes first takes it.",
    ),
]
RejectCodeWord = Annotated[
    str,
    one_of(
        "RejectCode",
        "Why an offer cannot serve a request.",
        shape_differs="It has other GPUs, or less of something, than the SKU.",
        architecture_not_sold="Its CPU is one on which we are not known to run.",
        spot="It is spot capacity, and the lease is on demand or we order no spot from this provider.",
        on_demand="It is sold on demand, and the lease is spot.",
        region_excluded="It is in a region that the request excludes.",
        provider_excluded="It is of a provider that the request excludes.",
        network_too_slow="Its network is slower than the request demands, or its provider does not state it.",
        envelope_excluded="An envelope does not allow its region or its provider.",
        sold_out="The provider listed no stock.",
        stale="The provider has not been asked for too long.",
        costs_more_than_sold="It costs us more than the SKU's price.",
        account_unhealthy="Our account at the provider fails or is frozen.",
        failed_before="The lease failed there before.",
        resting="Orders there failed lately, so it is left alone for a while.",
        blocked="An order of another lease was refused lately, and the refusal covers it.",
        yielded="A machine there was taken back for a lease in need, which gets the next one.",
        proof_record="Its machines failed their GPU proof lately.",
    ),
]
BlockScopeWord = Annotated[
    str,
    one_of(
        "BlockScope",
        "What is not ordered for a while after a provider refused an order.",
        offer="One machine type in one place.",
        type="One machine type, wherever it is.",
        zone="Everything in one zone, or in one region where the provider's orders name no zones.",
        region="Everything in one region.",
        account="Everything that the account could order.",
        provider="Everything at the provider, by any account.",
    ),
]
HeldCodeWord = Annotated[
    str,
    one_of(
        "HeldCode",
        "Why an orphan is held back.",
        other_account="Another account has an open record of it, so it is no orphan.",
        left="An operator decided that it is left alone.",
        adopting="An operator decided that its record adopts it, and it is not ended meanwhile.",
        unrecorded="No record says that it was ordered: it may be a customer's, and only an operator ends it.",
        watched="A record may be about to claim it.",
        account_failing="The account's machines cannot be listed, so nothing is terminated there.",
        account_frozen="The account's list looks wrong, so nothing is terminated there.",
        lost_records="Machines without a record are listed there, so records were lost, and nothing is terminated.",
        too_many="Too much of the account's list looks orphaned, so our records are more likely wrong.",
        not_armed="The account is not armed, or no longer, so its orphans are only reported.",
        dry_run="The reconciler reports orphans and terminates none.",
        next_run="Others come first in this run.",
    ),
]
OrphanChoiceWord = Annotated[
    str,
    one_of(
        "OrphanChoice",
        "What an operator decides about an orphan. The last decision counts.",
        end="It is terminated by the next run, whatever holds it back.",
        leave="It is not terminated, until an operator decides otherwise.",
        adopt="Its own record takes it, in place of a machine that the provider does not list.",
        revoke="The decision before this one no longer counts.",
    ),
]
OriginWord = Annotated[
    str,
    one_of(
        "Origin",
        "How a machine became an orphan.",
        lost_answer="The answer to its launch was lost, and it was listed only after the search for it was given up.",
        late_success="The provider refused the order, and launched the machine all the same.",
        second_machine="One order made two machines.",
        listed_again="The provider had listed it as ended, or had not listed it any more.",
        other_account="Its order was placed at another account of ours.",
        unrecorded="No record says that it was ordered: records were lost, or another tool copied the name.",
    ),
]
FindingCodeWord = Annotated[
    str,
    one_of(
        "FindingCode",
        "What a challenge found.",
        malformed="The prover sent bytes that are not a message of the protocol.",
        protocol="The prover sent a message out of turn, twice, or before it was asked for.",
        gpu_count="The machine has another number of GPUs than was sold.",
        gpu_duplicate="One GPU is listed more than once.",
        gpu_model="A GPU has another name than what was sold.",
        gpu_memory="A GPU has another amount of memory than what was sold.",
        gpu_shared="A GPU says that it is only a part of a card, but a whole card was sold.",
        uuid_differs="NVML and CUDA report different UUIDs for the same GPU.",
        bus_differs="NVML and CUDA report different PCI addresses for the same GPU.",
        pci_differs="NVML and the PCI bus report different device ids for the same GPU.",
        pci_other="A GPU has the PCI device id of another model.",
        capability="A GPU has another compute capability than its model.",
        memory_short="A GPU has less free memory than must be filled to prove what was sold.",
        too_slow=(
            "An answer came later than the time rule allows, or never, although the machine could be reached."
        ),
        too_fast="An answer came earlier than this model can compute it.",
        unopened="The prover committed to an answer and then did not open the sample.",
        wrong_sizes="The sizes of an answer do not fit the order.",
        wrong_root="The group hashes do not hash to the root that stopped the clock.",
        wrong_group="The opened digests are not those that the prover committed to.",
        wrong_digest="The prover committed to a digest that is not the result of the computation.",
        memory_in_use=(
            "A customer holds the machine, and a GPU has too little free memory for a meaningful walk."
        ),
        line_broken="The line to the prover broke.",
        silent="The prover did not answer a question that is not timed.",
        refused="The prover says that it cannot go on.",
        too_long="The conversation took longer than its time limit.",
        version="The prover speaks another version of the protocol.",
        nvml_silent="NVML says nothing about a GPU.",
        sharing_unknown="The machine does not say whether a GPU is a part of a card.",
        pci_doubtful="A GPU has a PCI device id that we do not know for certain.",
        proc_differs="The kernel driver reports another name for a GPU than NVML.",
        sms_differ="A GPU has another number of multiprocessors than the data sheet.",
        bus_width_differs="A GPU has another memory bus width than its model.",
        bandwidth_differs="Memory clock and bus width of a GPU do not result in the bandwidth of its model.",
        cuda_memory_differs="CUDA and NVML differ in a GPU's memory by more than a driver uses itself.",
        ecc_differs="NVML, CUDA and the amount of memory do not agree on whether ECC is on.",
        mps="A GPU is used through the multi-process service, which shares it.",
        processes="Other processes use a GPU.",
        throttled="A GPU is slowed down by heat or by its power supply.",
        uneven="Repeats of one phase differ by more than 5 %.",
        retried="A timed phase was in time only after it was repeated.",
        time_sliced="The clock of a GPU jumps on most of its multiprocessors.",
        sms_unseen="The gap kernel ran on fewer multiprocessors than the GPU claims.",
        attestation_rejected="A GPU's attestation was not accepted.",
        attestation_unanswered="The prover did not answer when its GPUs' attestation was asked for.",
        gaps_unanswered="The prover did not answer how often its GPUs' clocks jump.",
        gpu_sold_twice="Another live machine of this account has reported the same GPU. It fails.",
        gpu_shown_elsewhere=(
            "A live machine of another account has reported the same GPU. It fails, without blame."
        ),
        disturbed="The customer began to compute during the challenge, which therefore does not count.",
        busy_without_customer=(
            "The GPUs are in use although no customer has been admitted to the machine. Unanswered."
        ),
        no_health=(
            "The machine did not report whether its GPUs are in use, so it was not challenged. Unanswered."
        ),
        no_prover="The prover could not be started on the machine. Unanswered.",
        no_end="The challenge as a whole took longer than its limit. Unanswered.",
    ),
]
