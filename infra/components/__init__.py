"""The parts of a deployment, one component resource a file: arguments in, outputs out, children below their parent."""
