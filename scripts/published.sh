# Sourced: the crates that are published, each after those that it needs.
published=(pinfold-sys pinfold pinfold-netns pinfold-bench pinfold-lab pinfold-cli)
