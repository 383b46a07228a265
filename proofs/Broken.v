(* Each theorem with a part left out or changed, and numbers for which it is then false. *)
From Coq Require Import ZArith QArith Qabs Qround List Bool Lia.
From Abcdp Require Lists SparseVector Nearest Vectors Grid Costs Clip TopUp Digits Sums.
Import ListNotations.
Open Scope Z_scope.

Module Runs.
Import Lists SparseVector.

(* The threshold stays: a rejected draw is accepted on the neighbour (no threshold noise to shift). *)
Example threshold_not_lowered :
  let out := run (one_draw 0 0) 1 0 [(true, 1)] [0] in
  accepted (run (one_draw 0 0) 1 0 [(true, 0)] (shift 1 out [0])) <> accepted out.
Proof. vm_compute. discriminate. Qed.

(* Accepted noise by -D alone: threshold and distance can move against each other (equal scales). *)
Example accepted_lowered_once :
  accepted (run (one_draw 0 (shift_threshold 1 0)) 1 0 [(true, 1)] [0 - 1])
  <> accepted (run (one_draw 0 0) 1 0 [(true, 0)] [0]).
Proof. vm_compute. discriminate. Qed.

(* A shift upwards (both signs flipped): a rejected draw would have to be shifted too. *)
Example threshold_raised :
  accepted (run (one_draw 0 1) 1 0 [(true, 0)] [0]) <> accepted (run (one_draw 0 0) 1 0 [(true, 1)] [0]).
Proof. vm_compute. discriminate. Qed.

(* Neighbours that move two steps where one is charged. *)
Example neighbours_too_far :
  let out := run (one_draw 0 0) 1 0 [(true, 2)] [0] in
  accepted (run (one_draw 0 (shift_threshold 1 0)) 1 0 [(true, -1)] (shift 1 out [0])) <> accepted out.
Proof. vm_compute. discriminate. Qed.

(* The shift of the rows does not keep gaps. *)
Example gaps_by_the_shift_of_rows :
  let out := run (one_draw 0 0) 1 0 [(true, 0)] [0] in
  run (one_draw 0 (shift_threshold 1 0)) 1 0 [(true, 0)] (shift 1 out [0]) <> out.
Proof. vm_compute. discriminate. Qed.

(* The gap to the public threshold: what keeps it, nu + rho - rho', loses the accept. *)
Example gap_to_the_public_threshold :
  accepted (run (one_draw 0 (shift_threshold 1 0)) 1 0 [(true, 1)] [0 + 0 - 1])
  <> accepted (run (one_draw 0 0) 1 0 [(true, 0)] [0]).
Proof. vm_compute. discriminate. Qed.

(* One accept more than was paid for, and a stop that is not there. *)
Example one_accept_too_many :
  let rows := [(true, 0); (true, 0); (true, 0)] in
  let out := run (one_draw 0 0) 3 0 rows [0; 0; 0] in
  2 * 2 * 1 < size (shift 1 out [0; 0; 0]) - size [0; 0; 0].
Proof. vm_compute. reflexivity. Qed.

(* A piece of a bank that is begun at a count of its own. *)
Example pieces_counted_anew :
  run (one_draw 0 0) 1 0 ([(true, 0)] ++ [(true, 0)]) ([0] ++ [0])
  <> run (one_draw 0 0) 1 0 [(true, 0)] [0] ++ run (one_draw 0 0) 1 0 [(true, 0)] [0].
Proof. vm_compute. discriminate. Qed.

(* New thresholds at the price of one. *)
Example resampled_at_the_price_of_one : 1 * 1 < size (map (shift_threshold 1) [0; 0]) - size [0; 0].
Proof. vm_compute. reflexivity. Qed.

(* One-sided noise with a sign flipped: what is shifted is impossible. *)
Example one_sided_threshold_up : ~ 0 <= shift_threshold 1 0.
Proof. vm_compute. congruence. Qed.
Example one_sided_distance_up :
  ~ Forall (fun nu => 0 <= nu) (shift 1 (run (one_draw 0 0) 1 0 [(true, 0)] [0]) [0]).
Proof. vm_compute. intros above. inversion above. congruence. Qed.

(* Half of the distance noise: the charge is less than the loss. *)
Example half_of_the_charge :
  let out := run (one_draw 0 0) 1 0 [(true, 0)] [0] in
  Qle_bool (loss 2 2 [0] [shift_threshold 1 0] [0] (shift 1 out [0])) (charge 1 1 1 2 4) = false.
Proof. vm_compute. reflexivity. Qed.

(* All noise put to one number is no translation: two noises become one. *)
Example not_injective : map (fun _ : Z => -2) [0] = map (fun _ : Z => -2) [1] /\ [0] <> [1].
Proof. vm_compute. split; [reflexivity|discriminate]. Qed.
End Runs.

Module Winners.
Import Lists Nearest.

Example raised_once :
  let winners := nearest 1 (value [1; 0] [0; 0]) [0; 1]%nat in
  winners = [1]%nat /\ nearest 1 (value [0; 1] [0; 1]) [0; 1]%nat = [0]%nat.
Proof. vm_compute. split; reflexivity. Qed.

(* Noise that is added instead: the winners would have to give some back. *)
Example added_noise : ~ Forall (fun e => 0 <= e) (map (fun e => e - 2 * 1) [0]).
Proof. vm_compute. intros above. inversion above. congruence. Qed.

(* The order of the winners is not kept. *)
Example order_of_winners :
  let winners := nearest 2 (value [0; 1; 5] [0; 0; 0]) [0; 1; 2]%nat in
  nearest 2 (value [1; 0; 5] (raise_winners 1 winners [0; 0; 0])) [0; 1; 2]%nat <> winners.
Proof. vm_compute. discriminate. Qed.

(* The charge of one winner for two. *)
Example charge_of_one : 2 * 1 * 1 < sum (raise_winners 1 [0; 1]%nat [0; 0]) - sum [0; 0].
Proof. vm_compute. reflexivity. Qed.

(* Ties to the later row on one side alone. *)
Example ties_the_other_way :
  beats (value [0; 0] [0; 0]) 0 1 = true /\ beats (value [0; 0] [0; 0]) 1 0 = false.
Proof. vm_compute. split; reflexivity. Qed.
End Winners.

Module Summaries.
Import Lists Vectors.

(* Laplace noise for the largest entry alone. *)
Example laplace_for_the_largest_entry :
  largest (minus [1; 1] [0; 0]) < size (follow [1; 1] [0; 0] [0; 0]) - size [0; 0].
Proof. vm_compute. reflexivity. Qed.

(* A shift the wrong way round. *)
Example followed_backwards : release [0] (follow [0] [1] [0]) <> release [1] [0].
Proof. vm_compute. discriminate. Qed.

(* Half of the move for box noise. *)
Example half_of_the_box : 1 * 1 < 2 * (largest (follow [1; 0] [0; 1] [0; 0]) - largest [0; 0]).
Proof. vm_compute. reflexivity. Qed.
End Summaries.

Module Grids.
Import Lists Grid.
Open Scope Q_scope.

(* The scalar rule for a vector: both entries cross a line. *)
Example scalar_rule_for_vectors :
  let x := [9 # 10; 9 # 10] in let y := [1; 1] in
  (Qceiling (moves x y) < size (minus (map (quantise 1) x) (map (quantise 1) y)))%Z.
Proof. vm_compute. reflexivity. Qed.

(* Half to even: a move of one becomes two. *)
Definition to_even (x : Q) : Z :=
  if Qeq_bool (x - inject_Z (Qfloor x)) (1 # 2) then (if Z.even (Qfloor x) then Qfloor x else Qfloor x + 1)%Z
  else Qfloor (x + (1 # 2)).
Example rounded_to_even : (Qceiling ((3 # 2) - (1 # 2)) < Z.abs (to_even (3 # 2) - to_even (1 # 2)))%Z.
Proof. vm_compute. reflexivity. Qed.

(* The error of one side forgotten. *)
Example one_error_forgotten :
  Qabs (0 - (1 # 2)) <= 1 # 2 /\ Qabs (2 - (3 # 2)) <= 1 # 2
  /\ (Qceiling ((1 + (1 # 2)) / (1 # 2)) < Z.abs (quantise (1 # 2) 0 - quantise (1 # 2) 2))%Z.
Proof. vm_compute. repeat split; congruence. Qed.

(* A number that wraps around instead of saturating. *)
Example wrapped_around : (Z.abs (4 - 3) < Z.abs (Z.modulo 4 4 - Z.modulo 3 4))%Z.
Proof. vm_compute. reflexivity. Qed.

(* Of a box the smallest step for all is not needed; the rule of a smaller K is false. *)
Example box_of_less : (1 < largest (minus [0; 2] [0; 0]))%Z.
Proof. vm_compute. reflexivity. Qed.
End Grids.

Module Scales.
Import Costs.
Open Scope Q_scope.

Example rounded_down : Qle_bool (vector_cost 3 (Qfloor (inject_Z 3 / 2))) 2 = false.
Proof. vm_compute. reflexivity. Qed.

Example nearest_for_one_winner : Qle_bool (vector_cost (2 * 2 * 3) (vector_scale 1 (2 * 1 * 3))) 1 = false.
Proof. vm_compute. reflexivity. Qed.

Example scale_of_c :
  let scale := Qceiling (inject_Z (2 * 3) / 1) in Qle_bool (run_cost 3 scale (2 * scale) 2) 1 = false.
Proof. vm_compute. reflexivity. Qed.

Example threshold_for_free :
  let first := Qceiling (inject_Z 3 * (1 + 2) / 1) in
  Qle_bool (run_cost 3 first (Qceiling (inject_Z (2 * 2 * 3) / 1)) 2) 1 = false.
Proof. vm_compute. reflexivity. Qed.

Example runs_at_the_price_of_one :
  let (first, second) := paper_scales 1 1 3 in Qle_bool (resampled_cost 3 first second 2) 1 = false.
Proof. vm_compute. reflexivity. Qed.

Example largest_of_costs : Qle_bool (total [1; 1]) 1 = false.
Proof. vm_compute. reflexivity. Qed.
End Scales.

Module Records.
Import Lists Clip.

(* Shrunk and rounded to the nearest, a vector leaves the ball. *)
Example shrunk_to_the_nearest :
  let nearest radius long k := Z.sgn k * ((2 * Z.abs k * radius + Z.max long radius) / (2 * Z.max long radius)) in
  1 < size (map (nearest 1 2) [1; 1]).
Proof. vm_compute. reflexivity. Qed.

(* A root that was rounded down. *)
Example root_rounded_down : 1 * 1 < squares (map (shrink 1 (Z.sqrt (squares [1; 1]))) [1; 1]).
Proof. vm_compute. reflexivity. Qed.

(* The radius for the diameter. *)
Example radius_for_diameter : 1 < size (minus [1] [-1]) /\ 1 * 1 < squares (minus [1] [-1]).
Proof. vm_compute. split; reflexivity. Qed.

(* The L2 diameter in L1. *)
Example two_for_one : 2 * 5 < size (minus [3; 4] [-3; -4]) /\ squares [3; 4] <= 5 * 5.
Proof. vm_compute. split; [reflexivity|congruence]. Qed.

(* Limits of one entry for all. *)
Example one_entry_of_a_box : 1 < size (minus (clip_box [0; 0] [1; 1] [9; 9]) (clip_box [0; 0] [1; 1] [-9; -9])).
Proof. vm_compute. reflexivity. Qed.

(* Points on lines between rows that are 3 apart at most: rounded they are 4 apart. *)
Example lines_without_rounding :
  Forall (fun v => size v <= 3) [minus [-1; -2] [-1; 1]; minus [-1; -2] [0; 0]; minus [-1; 1] [0; 0]]
  /\ 3 < size (minus (map (round_half_up 4) (mix 4 0 [-1; -2] [-1; 1]))
                     (map (round_half_up 4) (mix 4 2 [-1; 1] [0; 0]))).
Proof. vm_compute. split; [repeat constructor; congruence|reflexivity]. Qed.

(* Two records replaced where one is charged. *)
Example two_records_for_one : 1 * 2 < size (minus (total 1 [[1]; [1]]) (total 1 [[-1]; [-1]])).
Proof. vm_compute. reflexivity. Qed.
Example two_records_largest : 1 * 2 < largest (minus (total 1 [[1]; [1]]) (total 1 [[-1]; [-1]])).
Proof. vm_compute. reflexivity. Qed.

(* A record far from all others, with the radius charged. *)
Example far_from_the_mean : 2 * 1 < size (minus (times 2 (total 1 [[1]; [-1]; [-1]])) (times 3 (total 1 [[-1]; [-1]]))).
Proof. vm_compute. reflexivity. Qed.
End Records.

Module Topped.
Import TopUp.
Open Scope Q_scope.

Example weights_exchanged :
  let w := weight (1 # 4) (1 # 2) in
  Qeq_bool (transform (1 # 2) 0) (transform (1 # 4) 0 * (w + (1 - w) * transform (1 # 2) 0)) = false.
Proof. vm_compute. reflexivity. Qed.

(* The other way round there is no such law: its weight is above 1. *)
Example no_way_back : Qle_bool (weight (1 # 4) (1 # 2)) 1 = false.
Proof. vm_compute. reflexivity. Qed.
End Topped.

Module Masses.
Import Sums.
Open Scope Q_scope.

(* Two noises that are shifted to one: each is as likely as it, both together are not. *)
Example shifted_to_one : Qle_bool (mass (fun _ : Z => 1) [0; 1]%Z) (1 * mass (fun _ : Z => 1) [0]%Z) = false.
Proof. vm_compute. reflexivity. Qed.
End Masses.

Module Chances.
Import Digits.
Open Scope Q_scope.

Example half_of_the_variation : Qle_bool (apart [1] [0]) (off [1] [0]) = false.
Proof. vm_compute. reflexivity. Qed.

Example chances_not_normalised :
  Qeq_bool (weight [1 # 2] [true]) (power (1 # 2) 1 * (1 - (1 # 2)) / (1 - power (1 # 2) 2)) = false.
Proof. vm_compute. reflexivity. Qed.
End Chances.
