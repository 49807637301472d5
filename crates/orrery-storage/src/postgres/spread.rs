//! Chooses ids for new partitions, to spread them over a Citus cluster.
//!
//! On Citus the hash of a partition's id determines its shard, and thereby its node. Partitions of one container are
//! busy together and should be on different nodes. So an id is chosen among the next free ones: the one whose node has
//! the fewest partitions of the same container, then whose shard has, then the same counted over all containers.

use std::collections::HashMap;

use super::key;
use super::pool::Session;
use super::server_error::ServerError;
use super::sql;
use crate::contract::PartitionId;

/// How many ids to consider, at least: with 64 shards these cover most of them.
const WINDOW_MIN: u32 = 192;
const WINDOW_PER_PARTITION: u32 = 8;
const WINDOW_MAX: u32 = 16_384;

const PLACES: &str = "SELECT t.number, p.shardid, p.groupid \
     FROM (SELECT number, get_shard_id_for_distribution_column('part', number) AS shard \
           FROM unnest($1::int[]) AS n(number)) t \
     JOIN pg_dist_placement p ON p.shardid = t.shard AND p.shardstate = 1";

/// The node and shard of a partition id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Placement {
    shard: i64,
    node: i32,
}

pub(super) async fn choose(
    session: &Session,
    from: u32,
    count: usize,
    beside: &[PartitionId],
) -> Result<Vec<PartitionId>, ServerError> {
    let wanted = u32::try_from(count).unwrap_or(u32::MAX);
    // More candidates spread better but make the query larger; beyond the window, later ids are as good.
    let window = wanted.saturating_mul(WINDOW_PER_PARTITION).clamp(WINDOW_MIN, WINDOW_MAX).max(wanted);
    let candidates: Vec<u32> = (from..from.saturating_add(window)).collect();
    let rows = session.query(sql::PARTITIONS, &[]).await?;
    let existing: Vec<u32> = rows.iter().map(|row| key::from_column(row.get(0)).0).collect();
    // One query for the places of both, the candidates and the existing partitions.
    let mut asked: Vec<i32> =
        candidates.iter().chain(&existing).map(|id| key::column(PartitionId(*id))).collect();
    asked.sort_unstable();
    asked.dedup();
    let rows = session.query(PLACES, &[&asked]).await?;
    let places: HashMap<u32, Placement> = rows
        .iter()
        .map(|row| (key::from_column(row.get(0)).0, Placement { shard: row.get(1), node: row.get(2) }))
        .collect();
    // A shard without an active placement has no node; its ids are not considered.
    let found = |ids: &mut dyn Iterator<Item = u32>| -> Vec<(u32, Placement)> {
        ids.filter_map(|id| Some((id, *places.get(&id)?))).collect()
    };
    let candidates = found(&mut candidates.into_iter());
    let existing = found(&mut existing.into_iter());
    let beside: Vec<u32> = beside.iter().map(|id| id.0).collect();
    Ok(spread(&candidates, &existing, &beside, count).into_iter().map(PartitionId).collect())
}

/// Number of partitions per node and shard.
#[derive(Default)]
struct Load {
    nodes: HashMap<i32, usize>,
    shards: HashMap<i64, usize>,
}

impl Load {
    fn add(&mut self, place: Placement) {
        *self.nodes.entry(place.node).or_default() += 1;
        *self.shards.entry(place.shard).or_default() += 1;
    }

    fn of(&self, place: Placement) -> (usize, usize) {
        let of = |count: Option<&usize>| count.copied().unwrap_or(0);
        (of(self.nodes.get(&place.node)), of(self.shards.get(&place.shard)))
    }
}

/// Picks ascending ids among the candidates.
fn spread(
    candidates: &[(u32, Placement)],
    existing: &[(u32, Placement)],
    beside: &[u32],
    count: usize,
) -> Vec<u32> {
    let (mut all, mut near) = (Load::default(), Load::default());
    for (id, place) in existing {
        all.add(*place);
        // Partitions of the same container count first, because they are busy together.
        if beside.contains(id) {
            near.add(*place);
        }
    }
    let mut left = candidates.to_vec();
    let mut chosen = Vec::with_capacity(count);
    while chosen.len() < count {
        // Greedy: every choice counts for the next ones, so that siblings created together spread out as well.
        let best = (0..left.len()).min_by_key(|at| (near.of(left[*at].1), all.of(left[*at].1), left[*at].0));
        let Some(best) = best else { break };
        let (id, place) = left.swap_remove(best);
        all.add(place);
        near.add(place);
        chosen.push(id);
    }
    chosen.sort_unstable();
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twelve consecutive ids on shards 0 to 3, two shards per node; consecutive ids would share a node.
    fn candidates() -> Vec<(u32, Placement)> {
        (10..22).map(|id| (id, place_of(id))).collect()
    }

    fn place_of(id: u32) -> Placement {
        let shard = i64::from(id / 3 % 4);
        Placement { shard, node: i32::try_from(shard / 2).unwrap() }
    }

    #[test]
    fn partitions_of_one_container_lie_apart() {
        let chosen = spread(&candidates(), &[], &[], 4);
        let mut shards: Vec<i64> = chosen.iter().map(|id| place_of(*id).shard).collect();
        shards.sort_unstable();
        assert_eq!(shards, [0, 1, 2, 3]);
        assert!(chosen.is_sorted());
    }

    #[test]
    fn two_children_lie_on_two_nodes() {
        let chosen = spread(&candidates(), &[], &[], 2);
        assert_ne!(place_of(chosen[0]).node, place_of(chosen[1]).node);
    }

    #[test]
    fn the_rest_of_the_container_counts_more_than_other_containers() {
        let at = |shard: i64, node: i32| Placement { shard, node };
        // The container has a partition on node 0; others fill node 1.
        let existing = [(1, at(0, 0)), (2, at(2, 1)), (3, at(3, 1)), (4, at(2, 1))];
        assert_eq!(place_of(spread(&candidates(), &existing, &[1], 1)[0]).node, 1);
        assert_eq!(place_of(spread(&candidates(), &existing, &[], 1)[0]).node, 0);
    }

    #[test]
    fn too_few_candidates_are_all_taken() {
        assert_eq!(spread(&candidates(), &[], &[], 100).len(), 12);
    }
}
